    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x98
    mov r14,rsi
    mov rbx,rdi
    cmp QWORD PTR [rdi+0x80],0x0
    je 0
    lea rdi,[rsp+0x50]
    mov rsi,rbx
    call _ZN4mlx58ethernet4send56_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$M$GT$$GT$13send_outgoing
    cmp BYTE PTR [rsp+0x50],0x20
    jne 19
0:
    mov rax,QWORD PTR [rbx+0x408]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 18
1:
    mov ebp,DWORD PTR [rbx+0x658]
    lea r15,[rbx+0x388]
    cmp BYTE PTR [rbx+0x460],0x0
    jne 21
2:
    mov WORD PTR [rbx+0x460],0x1
    mov DWORD PTR [rbx+0x458],0x0
    mov DWORD PTR [rbx+0x45c],ebp
    mov rax,0xffffffffffffffff
    movabs rcx,0x100000000
    cmp QWORD PTR [rbx+0x3b8],rcx
    je 3
    mov rcx,QWORD PTR [rbx+0x3c0]
    cmp DWORD PTR [rcx+0x190],0x2
    jne 3
    mov rsi,QWORD PTR [rcx+0x198]
    mov edx,DWORD PTR [rsi+0x100]
    movzx esi,WORD PTR [rsi+0x80]
    cmp si,dx
    je 3
    mov rsi,QWORD PTR [rcx+0x198]
    mov rdi,QWORD PTR [rsi+0x180]
    mov esi,DWORD PTR [rsi+0x188]
    dec esi
    and esi,edx
    movzx edx,si
    mov rdx,QWORD PTR [rdi+rdx*8]
    mov esi,DWORD PTR [rcx+0x1a4]
    mov ecx,DWORD PTR [rcx+0x1a0]
    cmp ecx,0x7fff
    ja 3
    mov edi,DWORD PTR [rbx+0x4d0]
    or rdi,0x20
    shl rsi,0x10
    or rsi,rdi
    shl ecx,0x10
    or ecx,edi
    jmp 4
3:
    xor edx,edx
    mov rcx,0xffffffffffffffff
    mov rsi,0xffffffffffffffff
4:
    mov edi,DWORD PTR [rbx+0x45c]
    sub edi,DWORD PTR [rbx+0x458]
    imul rdi,QWORD PTR [rbx+0x3c8]
    mov r8,QWORD PTR [rbx+0x3f0]
    add rdi,r8
    cmovb rdi,rax
    mov rax,QWORD PTR [rbx+0x400]
    cmp rax,rdi
    cmovb rdi,rax
    mov QWORD PTR [rbx+0x430],r8
    mov QWORD PTR [rbx+0x438],rdi
    mov QWORD PTR [rbx+0x440],rsi
    mov QWORD PTR [rbx+0x448],rcx
    mov QWORD PTR [rbx+0x450],rdx
    shr esi,0x10
    mov ecx,DWORD PTR [rbx+0x68]
    shl rsi,cl
    add rsi,rdx
    mov eax,0x10
    sub eax,ecx
    mov QWORD PTR [rsp+0x30],0x0
    mov QWORD PTR [rsp+0x10],r15
    mov QWORD PTR [rsp+0x18],rsi
    mov DWORD PTR [rsp+0x20],eax
    mov QWORD PTR [rsp+0x80],r14
    lea rax,[rsp+0x30]
    mov QWORD PTR [rsp+0x88],rax
    mov QWORD PTR [rsp+0x90],rbx
    lea r14,[rbx+0x8]
    lea rdi,[rsp+0x10]
    lea rsi,[rsp+0x80]
    mov rax,QWORD PTR [_ZN4mlx58ethernet8striding11each_behind]
    mov DWORD PTR [rsp+0xc],ecx
5:
    call rax
6:
    mov r13,QWORD PTR [rsp+0x10]
    mov rax,QWORD PTR [r13+0xa8]
    cmp rax,QWORD PTR [r13+0xb0]
    je 7
    mov eax,DWORD PTR [rax+0x3c]
    shr eax,0x18
    xor eax,DWORD PTR [r13+0x148]
    test al,0x1
    jne 14
7:
    cmp QWORD PTR [rbx+0x80],0x0
    je 8
    mov rdi,r14
    lea rsi,[rbx+0x70]
    call QWORD PTR [_ZN4mlx58ethernet8striding8Striding8hold_all]
    mov r13,QWORD PTR [rsp+0x10]
8:
    mov QWORD PTR [rsp+0x38],r14
    lea rax,[rbx+0x90]
    mov QWORD PTR [rsp+0x40],rax
    mov rdi,r13
    lea rsi,[rsp+0x38]
    lea rdx,[data]
    call QWORD PTR [_ZN7mlx5_cq4ring7strides46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$11find_packet]
    test al,al
    je 9
    mov r15,QWORD PTR [r13+0x50]
    mov rax,QWORD PTR [r13+0x58]
    mov QWORD PTR [rsp+0x28],rax
    movzx r12d,WORD PTR [r13+0x60]
    movzx eax,WORD PTR [r13+0x48]
    mov DWORD PTR [rsp+0xc],eax
    mov eax,DWORD PTR [r13+0x4c]
    mov DWORD PTR [rsp+0x8],eax
    mov rbp,QWORD PTR [r13+0x38]
    mov eax,0x188
    add rbp,rax
    and r12d,0x600
    jmp 10
9:
    xor r15d,r15d
10:
    mov rax,QWORD PTR [rsp+0x10]
    movzx edx,WORD PTR [rax+0xba]
    movzx ecx,BYTE PTR [rbx+0x68]
    shl rdx,cl
    add rdx,QWORD PTR [rax+0xc8]
    mov QWORD PTR [rsp+0x18],rdx
    test r15,r15
    je 14
    lea rdi,[rsp+0x38]
    mov rsi,r14
    mov rdx,QWORD PTR [rsp+0x28]
    mov ecx,DWORD PTR [rsp+0xc]
    mov r8d,DWORD PTR [rsp+0x8]
    lea r9,[rbx+0x98]
    call QWORD PTR [_ZN4mlx58ethernet8striding8Striding4find]
    cmp BYTE PTR [rsp+0x38],0x0
    jne 13
    cmp DWORD PTR [rsp+0x8],0x0
    jns 6
    mov rax,QWORD PTR [rsp+0x10]
    mov ecx,DWORD PTR [rax+0xd4]
    inc ecx
    mov DWORD PTR [rax+0xd4],ecx
    sub ecx,DWORD PTR [rax+0xd0]
    imul rcx,QWORD PTR [rax+0x40]
    mov rdx,0xffffffffffffffff
    add rcx,QWORD PTR [rax+0x68]
    jb 11
    mov rdx,rcx
11:
    mov rcx,QWORD PTR [rax+0x78]
    cmp rcx,rdx
    jb 12
    mov rcx,rdx
12:
    mov QWORD PTR [rax+0xb0],rcx
    jmp 6
13:
    movups xmm0,XMMWORD PTR [rsp+0x40]
    mov QWORD PTR [rsp+0x50],r15
    mov rax,QWORD PTR [rsp+0x28]
    mov QWORD PTR [rsp+0x58],rax
    mov QWORD PTR [rsp+0x60],rbp
    mov WORD PTR [rsp+0x68],0x82
    mov WORD PTR [rsp+0x6a],r12w
    movups XMMWORD PTR [rsp+0x70],xmm0
    lea r15,[rsp+0x80]
    mov rdi,r15
    lea rsi,[rsp+0x50]
    call QWORD PTR [_ZN4mlx58ethernet8striding6rarely]
    mov rsi,r15
    lea rdi,[rsp+0x10]
    mov rax,QWORD PTR [_ZN4mlx58ethernet8striding11each_behind]
    jmp 5
14:
    mov r14,QWORD PTR [rsp+0x30]
    mov rdi,rbx
    call _ZN4core3ptr84drop_in_place$LT$mlx5..ethernet..Burst$LT$mlx5..ethernet..striding..Striding$GT$$GT$
    cmp QWORD PTR [rbx+0x80],0x0
    je 16
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call _ZN4mlx58ethernet4send56_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$M$GT$$GT$13send_outgoing
    mov edx,DWORD PTR [rbx+0x370]
    mov eax,DWORD PTR [rbx+0x360]
    mov rcx,QWORD PTR [rbx+0x348]
    mov ecx,DWORD PTR [rcx+0x100]
    sub eax,ecx
    movzx eax,ax
    sub edx,eax
    jbe 15
    lea rdi,[rsp+0x50]
    mov rsi,rbx
    call QWORD PTR [_ZN4mlx58ethernet8striding89_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$mlx5..ethernet..striding..Striding$GT$$GT$13post_receives]
    cmp BYTE PTR [rsp+0x50],0x20
    jne 19
15:
    mov eax,0x1
    cmp BYTE PTR [rsp+0x38],0x20
    jne 19
    jmp 20
16:
    mov edx,DWORD PTR [rbx+0x370]
    mov eax,DWORD PTR [rbx+0x360]
    mov rcx,QWORD PTR [rbx+0x348]
    mov ecx,DWORD PTR [rcx+0x100]
    sub eax,ecx
    movzx eax,ax
    sub edx,eax
    jbe 17
    lea rdi,[rsp+0x50]
    mov rsi,rbx
    call QWORD PTR [_ZN4mlx58ethernet8striding89_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$mlx5..ethernet..striding..Striding$GT$$GT$13post_receives]
    cmp BYTE PTR [rsp+0x50],0x20
    jne 19
17:
    mov eax,0x1
    jmp 20
18:
    lea rdi,[rbx+0x378]
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue6attend]
    cmp al,0xa
    je 1
19:
    xor eax,eax
20:
    mov rdx,r14
    add rsp,0x98
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
21:
    mov rdi,r15
    call QWORD PTR [_ZN7mlx5_cq4ring7strides46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$11end_unended]
    jmp 2
    jmp 22
    jmp 22
22:
    mov r14,rax
    mov rdi,rbx
    call _ZN4core3ptr84drop_in_place$LT$mlx5..ethernet..Burst$LT$mlx5..ethernet..striding..Striding$GT$$GT$
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
