    push r14
    push rbx
    push rax
    mov rax,rcx
    mov rbx,rdi
    mov r8d,DWORD PTR [rsi+0x58]
    mov ecx,DWORD PTR [rsi+0x5c]
    mov rdi,QWORD PTR [rsi+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 0
    lea edi,[r8-0x1]
    mov DWORD PTR [rsi+0x60],edi
0:
    mov r10,QWORD PTR [rdx]
    mov r11,QWORD PTR [rdx+0x8]
    lea edx,[r11-0x1]
    cmp edx,DWORD PTR [rsi+0x78]
    jae 5
    cmp DWORD PTR [rsi+0x60],r8d
    js 5
    mov edi,DWORD PTR [rsi+0x64]
    and edi,r8d
    shl rdi,0x6
    add rdi,QWORD PTR [rsi]
    rol r11,0x20
    bswap r11
    bswap r10
    mov QWORD PTR [rdi+0x10],r11
    mov QWORD PTR [rdi+0x18],r10
    mov edx,DWORD PTR [rsi+0x68]
    movzx r9d,r8w
    shl r9,0x28
    or rdx,0x8000000
    movabs r10,0xa00000002
    or r10,r9
    lea r9,[r10+rdx*1]
    dec r9
    add r10,QWORD PTR [rsi+0x50]
    bswap r10
    mov QWORD PTR [rdi],r10
    mov QWORD PTR [rdi+0x8],rdx
    mov rdx,QWORD PTR [rsi+0x8]
    mov r10d,DWORD PTR [rsi+0x64]
    and r10d,ecx
    shl r10,0x4
    mov QWORD PTR [rdx+r10*1],rax
    mov QWORD PTR [rdx+r10*1+0x8],r9
    lea edx,[r8+0x1]
    inc ecx
    cmp DWORD PTR [rsi+0x6c],0x0
    je 1
    mov rax,QWORD PTR [rsi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 3
1:
    mov rdi,rbx
2:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 4
3:
    mov DWORD PTR [rsi+0x58],edx
    mov DWORD PTR [rsi+0x5c],ecx
    mov rax,QWORD PTR [rsi+0x38]
    mov WORD PTR [rax],cx
    mov rax,QWORD PTR [rsi+0x18]
    movzx ecx,dx
    bswap ecx
    mov DWORD PTR [rax+0x4],ecx
    sfence
    mov rax,QWORD PTR [rsi+0x20]
    movaps xmm0,XMMWORD PTR [rdi]
    movaps xmm1,XMMWORD PTR [rdi+0x10]
    movaps xmm2,XMMWORD PTR [rdi+0x20]
    movaps xmm3,XMMWORD PTR [rdi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    sfence
    mov rax,QWORD PTR [rsi+0x28]
    xor QWORD PTR [rsi+0x20],rax
    mov BYTE PTR [rbx],0x1e
4:
    mov rax,rbx
    add rsp,0x8
    pop rbx
    pop r14
    ret
5:
    mov r14,rsi
    mov rdi,rsi
    mov esi,r8d
    mov edx,ecx
    mov rcx,rax
    mov r8d,0x8
    xor r9d,r9d
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    mov ecx,edx
    mov rdi,rbx
    mov rsi,r14
    mov edx,eax
    jmp 2
    mov rbx,rax
    mov rdi,r14
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
